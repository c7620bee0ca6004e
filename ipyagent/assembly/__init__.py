"""The parts that an `Agent` is put together from: settings, sessions, tools, prompt, desks for what lives longer."""
