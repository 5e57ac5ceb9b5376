"""polopt's parts inside other people's trainers."""
