"""The command line; one file a command. Neither the engine nor passes import it."""
