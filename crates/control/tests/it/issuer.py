"""An OIDC issuer over HTTP, for tests: serves what lies in its folder, and misbehaves as `mode` there says."""

import http.server
import pathlib
import sys
import time

folder = pathlib.Path(sys.argv[1])


class Issuer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with open(folder / "asked", "a") as log:
            log.write(self.path + "\n")
        mode = (folder / "mode").read_text().strip()
        try:
            self.answer(mode)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def answer(self, mode):
        name = {"/.well-known/openid-configuration": "discovery", "/keys": "keys", "/evil": "evil"}.get(self.path)
        if name is None or not (folder / name).exists():
            return self.send(404, b"{}")
        body = (folder / name).read_bytes()
        if mode == "slow":
            time.sleep(30)
        elif mode == "drip":
            self.send_response(200)
            self.end_headers()
            for _ in range(60):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.5)
        elif mode == "huge":
            self.send_response(200)
            self.end_headers()
            for _ in range(512):
                self.wfile.write(b" " * (1 << 20))
        elif mode == "garbage":
            self.send(200, b"\x00<html>not json</html>")
        elif mode == "error":
            self.send(500, body)
        elif mode == "redirect":
            self.send_response(302)
            self.send_header("Location", "/evil")
            self.end_headers()
        else:
            self.send(200, body)

    def send(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Issuer)
server.daemon_threads = True
print(server.server_address[1], flush=True)
server.serve_forever()
