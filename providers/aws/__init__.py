"""Amazon EC2: live prices with an account, the public price list and Spot Advisor files without.

``client.py`` speaks to the SDK and ``public.py`` to the public files; ``parse/`` turns what they gave into our
values; ``account.py`` and ``catalogue.py`` put a region together from either. ``policy.json`` is the read-only IAM
policy that covers every call made here.
"""
