"""Drives a headless Chromium by its DevTools protocol over a pipe."""

import base64
import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

DEADLINE_S = 120


def missing():
    """Returns why Chromium cannot be used here; empty if it can."""
    return "" if shutil.which("chromium") else "the Debian package chromium is not installed (scripts/setup installs it)"


class Chromium:
    """A browser process with a profile of its own. It ends with the `with` block."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands_in, self.commands = os.pipe()
        self.replies, replies_out = os.pipe()
        # Chromium reads commands from descriptor 3 and writes replies to descriptor 4.
        shell = f"exec chromium \"$@\" 3<&{commands_in} 4>&{replies_out}"
        self.process = subprocess.Popen(
            ["sh", "-c", shell, "sh", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
             "--no-first-run", "--disable-dev-shm-usage", "--remote-debugging-pipe",
             f"--user-data-dir={self.profile.name}", "about:blank"],
            pass_fds=(commands_in, replies_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands_in)
        os.close(replies_out)
        self.number = 0
        self.bytes = b""
        self.events = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.send("Browser.close", {}, None)
        try:
            self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.commands)
        os.close(self.replies)
        self.profile.cleanup()

    def send(self, method, parameters, session):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        return self.number

    def read(self):
        """Reads one message."""
        end = time.monotonic() + DEADLINE_S
        while b"\0" not in self.bytes:
            ready, _, _ = select.select([self.replies], [], [], max(0, end - time.monotonic()))
            part = os.read(self.replies, 1 << 20) if ready else b""
            if not part:
                raise AssertionError("Chromium has ended or does not answer")
            self.bytes += part
        text, self.bytes = self.bytes.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **parameters):
        """Returns the result of one command. Events that arrive meanwhile are kept in `events`."""
        number = self.send(method, parameters, session)
        while True:
            message = self.read()
            if message.get("id") == number:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                return message["result"]
            if "method" in message:
                self.events.append(message)

    def open(self, **options):
        return Page(self, **options)


class Page:
    """One tab."""

    def __init__(self, browser, width=1280, height=900, dark=False):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Audits", "DOM", "Accessibility"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)

    def goto(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.documentElement !== null && location.href !== 'about:blank'")

    def run(self, expression):
        """Returns the value of a JavaScript expression, which may be a promise."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, expression):
        """Waits until a JavaScript expression is true."""
        end = time.monotonic() + DEADLINE_S
        while not self.run(expression):
            if time.monotonic() > end:
                raise AssertionError(f"not within {DEADLINE_S} s: {expression}; the page shows: "
                                     f"{self.run('document.body?.innerText ?? String()')[:2000]}")
            time.sleep(0.05)  # poll interval

    def events(self, *methods):
        self.run("1")  # collects the events that wait
        return [event for event in self.browser.events
                if event.get("sessionId") == self.session and event["method"] in methods]

    def complaints(self):
        """Returns what the browser complained about: console messages of warnings and errors, exceptions, and findings
        about contents security, contrast and forms."""
        found = [event["params"]["entry"] for event in self.events("Log.entryAdded")]
        found += [event["params"]["exceptionDetails"] for event in self.events("Runtime.exceptionThrown")]
        found += [event["params"] for event in self.events("Runtime.consoleAPICalled")
                  if event["params"]["type"] in ("warning", "error", "assert")]
        found += [event["params"]["issue"] for event in self.events("Audits.issueAdded")]
        return found

    def requests(self):
        return [event["params"]["request"]["url"] for event in self.events("Network.requestWillBeSent")]

    def press(self, key, code=0, text=""):
        for kind in ("keyDown", "keyUp"):
            extra = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **extra)

    def screenshot(self, path):
        """Writes a picture of the whole page, not only of the visible part."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(picture))
