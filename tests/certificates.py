"""A certificate for this machine and tokens, as an operator would make them."""

import hashlib
import subprocess


class Credentials:
    """Files in a folder: `certificate` (its own authority), `key`, `tokens`, and a token file of each name in `roles`."""

    def __init__(self, folder, roles):
        folder.mkdir()
        self._folder = folder
        self.certificate, self.key, self.tokens = folder / "tls.crt", folder / "tls.key", folder / "tokens"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        command += ["-subj", "/CN=tidetape-server", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
        subprocess.run([*command, "-keyout", self.key, "-out", self.certificate], check=True, capture_output=True)
        lines = []
        for name, role in roles.items():
            self.token(name).write_text(f"token-of-{name}\n")
            jobs = " *" if role == "agent" else ""
            lines.append(f"{name} {role} {hashlib.sha256(f'token-of-{name}'.encode()).hexdigest()}{jobs}\n")
        self.tokens.write_text("".join(lines))

    def token(self, name):
        return self._folder / f"{name}.token"
