"""The one ``__init__.py`` below tests: the wheel of gpuhunt installs a package of this name too, and would win.

The folders inside stay without, so that none of them can be taken for a package of ours (docs/design/conventions.md).
"""
