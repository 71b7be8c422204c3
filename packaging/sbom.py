"""sbom.py: SPDX 2.3 documents of what we build: the packages of the system in it, and what is linked statically.

A list made of dpkg's records alone would lack hiredis, llhttp and msgpack-c; they come from packaging/versions.
"""

import datetime
import hashlib
import re

import version


def identifier(name):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def package(name, version_, license_="NOASSERTION", purl=None):
    entry = {"SPDXID": identifier(f"Package-{name}"), "name": name, "versionInfo": version_, "downloadLocation": "NOASSERTION",
             "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "licenseDeclared": license_,
             "copyrightText": "NOASSERTION"}
    if purl:
        entry["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}]
    return entry


def document(subject, debian, bundled):
    """`debian`: (name, version, architecture) of packages that are contained; the subject is ours, of this commit; `bundled`: with what Debian 12 lacks."""
    ours = version.version_of("daemon")
    _, epoch, _ = version.commit_of()
    static = [part for part in version.Table().static if bundled or part["sha256"] == "-"]
    top = package(subject, ours, "MIT")
    contained = [package(name, of, purl=f"pkg:deb/debian/{name}@{of}?arch={arch}") for name, of, arch in sorted(debian)]
    linked = [package(part["name"], part["version"], part["license"]) for part in static]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", top)] + [(top["SPDXID"], "CONTAINS", entry) for entry in contained] \
        + [(top["SPDXID"], "STATIC_LINK", entry) for entry in linked]
    digest = hashlib.sha256(repr((subject, ours, sorted(debian))).encode()).hexdigest()
    created = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"{subject}-{ours}",
        "documentNamespace": f"https://{version.Table().values['address']}/spdx/{subject}-{digest}",
        "creationInfo": {"created": created, "creators": ["Tool: ratelimitd-packaging"]},
        "packages": [top, *contained, *linked],
        "relationships": [{"spdxElementId": of, "relationshipType": kind, "relatedSpdxElement": entry["SPDXID"]}
                          for of, kind, entry in relations],
    }
