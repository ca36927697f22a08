"""Vega with all of its parts as one script, so that the page needs no network."""

from importlib.metadata import version
from importlib.util import find_spec

from covshift.support.cache import home
from covshift.support.errors import CovshiftError
from covshift.support.files import replacing

PACKAGES = ("altair", "vl_convert", "jinja2")
_GLOBAL = "window.vegaEmbed = vegaEmbed;"


def check_installed() -> None:
    """Raise a `CovshiftError` where a package of the extra `report` is missing."""
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        raise CovshiftError(f"a report needs {', '.join(missing)}; pip install 'covshift[report]'")


def vega() -> str:
    """Return the script, which takes seconds to put together and is kept in the cache folder."""
    import vl_convert

    kept = home() / "report" / f"vega-{version('vl-convert-python')}.js"
    if kept.is_file():
        return kept.read_text()
    # Inside a page, the end of a script is looked for before anything else.
    script = vl_convert.javascript_bundle(_GLOBAL).replace("</script", "<\\/script")
    try:
        with replacing(kept) as part:
            part.write_text(script)
    except CovshiftError:
        return script  # a cache that cannot be written costs some seconds each time, and nothing else
    return script
