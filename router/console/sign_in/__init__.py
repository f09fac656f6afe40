"""Find out who asks: tokens, sessions in cookies, one-time links, OpenID Connect."""
