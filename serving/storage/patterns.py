"""How stores are named: patterns of what stands in a URI, for who reads it and for the doors that a Model passes.

They stand in the CustomResourceDefinition too: nothing that RE2 has not.
"""

from __future__ import annotations

from typing import Final

BUCKET: Final = r"[a-z0-9][-._a-z0-9]{1,220}[a-z0-9]"
"""Of S3 and Google, as both have it."""
_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
IMAGE: Final = (
    r"oci://(?P<host>[-.A-Za-z0-9]+(?::[0-9]{1,5})?|\[[0-9a-f:.]+\](?::[0-9]{1,5})?)"
    rf"/(?P<repository>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][-._A-Za-z0-9]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
"""As the OCI distribution specification has registries, repositories, tags and digests."""
