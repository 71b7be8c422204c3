"""certificates.py: certificates as an operator makes them with `openssl`, in a folder of a test."""

import subprocess


def openssl(*arguments):
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"openssl {' '.join(map(str, arguments))}\n{done.stderr}"
    return done.stdout


NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Authority:
    """A CA in `folder`: NAME.crt and NAME.key."""

    def __init__(self, folder, name="ca"):
        self.folder, self.name = folder, name
        self.certificate, self.key = folder / f"{name}.crt", folder / f"{name}.key"
        openssl("req", "-x509", *NEW_KEY, "-keyout", self.key, "-out", self.certificate, "-days", "30", "-subj", f"/CN={name}",
                "-addext", "basicConstraints=critical,CA:TRUE")

    def issue(self, name, names="", expired=False):
        """A certificate, NAME.crt and NAME.key; `names` as in "DNS:localhost,IP:127.0.0.1". Both paths."""
        certificate, key, request = (self.folder / f"{name}.{end}" for end in ("crt", "key", "csr"))
        openssl("req", "-new", *NEW_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}",
                *(["-addext", f"subjectAltName={names}"] if names else []))
        key.chmod(0o600)
        sign = ["x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-out", certificate,
                "-copy_extensions", "copy"]
        if not expired:
            openssl(*sign, "-days", "30")
            return certificate, key
        try:
            openssl(*sign, "-days", "-1")
        except AssertionError:  # OpenSSL 3.4 and newer take no end before the beginning
            openssl(*sign, "-not_before", "20200101000000Z", "-not_after", "20200102000000Z")
        return certificate, key
