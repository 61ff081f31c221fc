"""`lakelock` on serverless compute of Databricks, where a job has no environment variables.

Arguments: NAME=VALUE or NAME=secret:SCOPE/KEY, then `--`, then the command. A secret stays in its scope, and is in this
process only.
"""

import os
import sys

if __name__ == "__main__":
    at = sys.argv.index("--")
    for variable in sys.argv[1:at]:
        name, _, value = variable.partition("=")
        if value.startswith("secret:"):
            from databricks.sdk.runtime import dbutils

            value = dbutils.secrets.get(*value.removeprefix("secret:").split("/", 1))
        os.environ[name] = value
    sys.argv[1:] = sys.argv[at + 1 :]

    from connector.cli.app import main

    main()
