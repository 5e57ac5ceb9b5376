"""Control: policies that act in environments of gymnasium, step by step."""
