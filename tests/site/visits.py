"""Visits to the built site in a real browser, with every request to another host blocked and recorded."""

from contextlib import contextmanager

import serve
from frames import DRAWN

CHAPTER = "chapters/8-3-1-paged-kv-cache.html"
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}

# Colours fade from one theme to the other.
AT_REST = "document.getAnimations().every(animation => animation.playState === 'finished')"
MATH_DRAWN = "[...document.querySelectorAll('.math')].every(math => math.querySelector('mjx-container'))"


def pages():
    """Paths of all built pages, as the browser asks for them. The lab's are JupyterLite's own."""
    site = serve.build()
    built = [path.relative_to(site) for path in sorted(site.rglob("*.html"))]
    return [path.as_posix() for path in built if path.parts[0] not in ("_static", "lite")]


def block_foreign_requests(context, site_url):
    """Lets nothing but the site through; returns the list that will hold what else was asked for."""
    foreign = []

    def guard(route):
        url = route.request.url
        if url.startswith((site_url + "/", "data:", "blob:")):
            route.continue_()
        else:
            foreign.append(url)
            route.abort()

    context.route("**/*", guard)
    return foreign


def go_to(page, url):
    """Open url and wait until all of it is drawn."""
    page.goto(url)
    page.wait_for_function(f"document.readyState === 'complete' && {DRAWN} && {MATH_DRAWN}")


@contextmanager
def visiting(browser, site_url, path, **context):
    """A page with nothing foreign: on leaving, asserts that it asked no other host and logged no error."""
    errors = []
    with browser.new_context(viewport=context.pop("viewport", DESKTOP), **context) as opened:
        foreign = block_foreign_requests(opened, site_url)
        page = opened.new_page()
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on(
            "response", lambda response: errors.append(f"{response.status} {response.url}") if not response.ok else None
        )
        page.on("pageerror", lambda error: errors.append(str(error)))
        if context.get("java_script_enabled", True):
            go_to(page, f"{site_url}/{path}")
        else:
            page.goto(f"{site_url}/{path}")
        yield page
        assert not foreign, f"{path}, or a page after it, asked other hosts: {foreign}"
        assert not errors, f"{path}, or a page after it, logged errors: {errors}"
