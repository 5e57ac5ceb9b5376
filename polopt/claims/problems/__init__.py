"""Problems of the lab's kind that one paper's claims alone are measured on."""
