from probe.cli.main import main

main()
