"""Pages that show hostile names."""

from __future__ import annotations

import json
import re

HOSTILE = '</script><script>alert(1)</script><img src=x onerror=alert(2)> \u2028 "&'


def pictures_in(made):
    found = re.findall(r'<section class="picture"><script type="application/json">(.*?)</script>', made)
    return [json.loads(text) for text in found]
