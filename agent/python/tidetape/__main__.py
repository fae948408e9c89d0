import sys

from tidetape.cli import main

sys.exit(main())
