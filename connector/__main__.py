from connector.cli.app import main

main()
