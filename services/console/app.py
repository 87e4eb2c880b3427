"""The commands of `liken`: their words, options and help.

What a command does lies in a module of its own, which is imported when it runs: a table of devices must not
wait for gRPC.
"""

from pathlib import Path
from typing import Annotated

import typer

from services.console.output import Format


def _path(text: str) -> Path:
    """The path an option gives. An empty one, as an unset variable leaves it, is not the current folder."""
    if not text:
        raise typer.BadParameter("an empty path; give one, or leave the option out")
    return Path(text)


app = typer.Typer(
    help="A machine's hardware for containers, through Kubernetes dynamic resource allocation.",
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Output = Annotated[
    Format, typer.Option("-o", "--output", help="table or wide for people; json, yaml, name for programs.")
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state",
        help="State folder of `liken up`; by default below the XDG state home.",
        metavar="DIR",
        parser=_path,
    ),
]
Root = Annotated[
    Path | None,
    typer.Option(
        "--root",
        help="A folder or a recording (.tar, .tar.gz, .tar.bz2, .tar.xz) with sys/, in place of /.",
        metavar="DIR|RECORDING",
        parser=_path,
    ),
]


@app.command()
def up(state: StateDir = None, root: Root = None) -> None:
    """Run the four services in the foreground, with a local cluster in the state folder. Ctrl-C ends them."""
    from services.console.up import run

    raise typer.Exit(run(state, root))


@app.command()
def down(state: StateDir = None) -> None:
    """End what `liken up` runs."""
    from services.console.status import down as run

    run(state)


@app.command()
def status(state: StateDir = None, output: Output = Format.table) -> None:
    """Show the processes, the last inventory, the claims, and what is wrong."""
    from services.console.status import status as run

    run(state, output)


@app.command()
def devices(root: Root = None, state: StateDir = None, output: Output = Format.table) -> None:
    """List the devices that a claim can have."""
    from services.console.hardware import devices as run

    run(root, state, output)


@app.command()
def slices(
    root: Root = None,
    state: StateDir = None,
    node: Annotated[
        str | None, typer.Option("--node", help="The node's name; by default this machine's.")
    ] = None,
    output: Output = Format.table,
) -> None:
    """Show the ResourceSlices that offer this hardware."""
    from services.console.hardware import slices as run

    run(root, state, node, output)


@app.command()
def explain(
    what: Annotated[
        str | None,
        typer.Argument(
            help="A device, a /dev node, a bus address, a claim; nothing for everything.", metavar="[WHAT]"
        ),
    ] = None,
    root: Root = None,
    state: StateDir = None,
    output: Output = Format.table,
) -> None:
    """Say which rule published, split, held, withheld or ignored a piece of hardware, and what to do."""
    from services.console.explain import explain as run

    run(what, root, state, output)


@app.command()
def unclaimed(
    root: Root = None,
    state: StateDir = None,
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            help="table, wide, json, yaml, name, or modules-load (lines for modules-load.d).",
        ),
    ] = "table",
) -> None:
    """List hardware without a driver, and the kernel modules that would drive it."""
    from services.console.unclaimed import unclaimed as run

    run(root, state, output)


@app.command()
def claim(
    name: Annotated[str, typer.Argument(help="The claim, or NAMESPACE/NAME.", metavar="NAME")],
    devices: Annotated[list[str], typer.Argument(help="Names of devices.", metavar="DEVICE...")],
    state: StateDir = None,
    output: Output = Format.table,
) -> None:
    """Claim devices on the local cluster, prepare them, and print how a container gets them."""
    from services.console.claims import claim as run

    run(name, devices, state, output)


@app.command()
def claims(state: StateDir = None, output: Output = Format.table) -> None:
    """List the claims of the local cluster and whether their hardware is there."""
    from services.console.claims import claims as run

    run(state, output)


@app.command()
def release(
    name: Annotated[
        str | None, typer.Argument(help="The claim, or NAMESPACE/NAME.", metavar="[NAME]")
    ] = None,
    force: Annotated[
        str | None,
        typer.Option("--force", help="Unprepare by UID, for a kubelet that lost its state.", metavar="UID"),
    ] = None,
    state: StateDir = None,
) -> None:
    """Unprepare a claim and remove it. Doing it twice does no harm."""
    from services.console.claims import release as run

    if (name is None) == (force is None):
        raise typer.BadParameter("give a NAME, or --force UID")
    run(name, force, state)


@app.command()
def record(
    file: Annotated[
        Path, typer.Argument(help="The archive to write: .tar, .tar.gz, .tar.bz2 or .tar.xz.", metavar="FILE")
    ],
    root: Root = None,
) -> None:
    """Record what the rules read of this machine; serial numbers are masked."""
    from services.console.record import run

    run(file, root)


@app.command()
def unplug(
    path: Annotated[
        str, typer.Argument(help="A bus address such as 1-2, or a path below /sys.", metavar="PATH")
    ],
    slow: Annotated[
        float,
        typer.Option(
            "--slow",
            help="Let the drivers go this many seconds before the device.",
            min=0.0,
            max=3600.0,
            metavar="SECONDS",
        ),
    ] = 0.0,
    state: StateDir = None,
) -> None:
    """Take a device away from a played machine, in the order the kernel does."""
    from services.console.played import unplug as run

    run(path, slow, state)


@app.command()
def plug(
    path: Annotated[str, typer.Argument(help="What was unplugged: its bus address or path.", metavar="PATH")],
    state: StateDir = None,
) -> None:
    """Give a played machine a device back, with new numbers as the kernel would give them."""
    from services.console.played import plug as run

    run(path, state)
