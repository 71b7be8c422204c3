"""fault_names.py: a DNS server whose answers a test changes while it runs. Run as a program, in the test's network namespace.

    fault_names.py FILE    answer what FILE says: for each name {"addresses": [...], "delay_s": 0}; no such name: NXDOMAIN

It reads the file for each question, and appends the name to FILE.asked. It knows A records; others have no records.
"""

import json
import socket
import struct
import sys
import threading
import time
from pathlib import Path

A, NXDOMAIN = 1, 3


def question_of(packet):
    """The name, the type, and where the question ends."""
    labels, at = [], 12
    while packet[at]:
        labels.append(packet[at + 1:at + 1 + packet[at]].decode())
        at += 1 + packet[at]
    return ".".join(labels), struct.unpack_from("!H", packet, at + 1)[0], at + 5


def answer_to(packet, names):
    name, kind, end = question_of(packet)
    known = names.get(name)
    addresses = known["addresses"] if known and kind == A else []
    records = b"".join(struct.pack("!HHHIH", 0xC00C, A, 1, 0, 4) + socket.inet_aton(address) for address in addresses)
    flags = 0x8580 | (0 if known else NXDOMAIN)
    return packet[:2] + struct.pack("!HHHHH", flags, 1, len(addresses), 0, 0) + packet[12:end] + records


def main(path):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 53))
        print("ready", flush=True)
        while True:
            packet, peer = server.recvfrom(512)
            names = json.loads(Path(path).read_text())
            name = question_of(packet)[0]
            with open(f"{path}.asked", "a") as asked:
                asked.write(f"{name}\n")

            def reply(packet=packet, peer=peer, names=names, name=name):
                time.sleep(names.get(name, {}).get("delay_s", 0))
                server.sendto(answer_to(packet, names), peer)

            threading.Thread(target=reply, daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1])
