"""Entry point of the agent: ``python agent.pyz CONFIG.json``.

The agent starts itself with ``--guard`` and ``--fetch`` for the processes that it needs beside it, and systemd with
``--deallocate`` before a machine of Azure is switched off.
"""

from __future__ import annotations

import sys


def main(arguments: list[str], agent: str) -> int:
    """Run the agent, its guard or its fetcher, and return the exit code. ``agent`` is the path of the zipapp."""
    # Imports are made per mode, because the guard lives as long as the agent and should use little memory.
    if arguments == ["--guard"]:
        from router.agent import guard

        return guard.main()
    if arguments == ["--deallocate"]:
        from router.agent.lease import deallocate

        return deallocate()
    if len(arguments) == 2 and arguments[0] == "--fetch":
        from router.agent import config, fetch

        return fetch.main(config.read_config(arguments[1]))
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: agent.pyz CONFIG.json\n")
        return 2
    return _run_agent(arguments[0], agent)


def _run_agent(config_file: str, agent: str) -> int:
    import os
    import queue
    import signal
    from pathlib import Path

    from router.agent.config import AgentConfigError, read_config
    from router.agent.node import RankAgent
    from router.agent.protocol import BAD_CONFIG
    from router.agent.starters import read_job_environment
    from router.agent.supervise import AgentEvent

    events: queue.SimpleQueue[AgentEvent] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: events.put(AgentEvent("signal", signal.Signals(received).name)))
    try:
        config = read_config(config_file)
        given = read_job_environment(config.env_file)
        token = Path(config.token_file).read_text(encoding="ascii").strip()
        if not token or not token.isprintable():
            raise AgentConfigError(f"{config.token_file}: not a token")
        node = RankAgent(
            config,
            agent=str(Path(agent).resolve()),
            config_file=str(Path(config_file).resolve()),
            token=token,
            given=given,
            environment=os.environ,  # noqa: TID251  (the edge)
            events=events,
        )
    except AgentConfigError as error:
        sys.stderr.write(f"stepfare: {error}\n")
        return BAD_CONFIG
    except (OSError, UnicodeDecodeError) as error:
        sys.stderr.write(f"stepfare: {type(error).__name__}: {getattr(error, 'filename', None) or ''}\n")
        return BAD_CONFIG
    return node.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.argv[0]))
