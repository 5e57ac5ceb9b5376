"""The documentation site: pages made from the code when mkdocs runs, see mkdocs.yml. polopt does not import it."""
