"""The parts that an `Agent` is put together from: settings files, sessions, tools, prompt, and the session set-up that
connects them."""
