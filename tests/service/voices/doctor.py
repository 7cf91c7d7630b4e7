"""What `doctor` says of a folder of voices, without all else that it looks at.

python -m tests.service.voices.doctor FOLDER
"""

import sys

from sonorant.service.config import parse_args
from sonorant.service.doctor import _voices
from tests.service.findings import finding_of

finding = finding_of(_voices, parse_args(["--voices-dir", sys.argv[1]], {}))
print(finding.verdict, finding.text)
