"""A module whose import does not end. It opens the file that an environment variable names once it has begun."""

import os
import time

with open(os.environ["IMPORT_BEGINS"], "w"):
    pass
time.sleep(600)
