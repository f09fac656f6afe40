"""Amazon EC2: live prices with an account, the public price list and Spot Advisor files without.

``client.py`` calls the SDK and ``public.py`` fetches the public files; ``parse/`` turns their answers into values;
``account.py`` and ``region_calls.py`` build a region from either. ``policy.json`` is the read-only IAM policy that
covers every call made here.
"""
