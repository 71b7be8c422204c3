"""test_client.py: what the client adds to the contract that the conformance suite tests."""

from scripts import run

CLAMP = """
require 'src/autoload.php';
$client = new Ratelimitd\\Client(timeout: 5.0);
[$decision, $reservation] = $client->reserve('web', 'k', 5000, clamp: true);
$reservation->settle(30);
[$denied, $none] = $client->reserve('web', 'k', 5000, clamp: true);
[$small] = $client->reserve('web', 'k', 60, clamp: true);
$work = $client->withReservation('web', 'other', 5000, fn ($reservation) => $reservation->settle(1) ? 'done' : '', clamp: true);
echo json_encode([$decision->granted, $denied->allowed, $none, $small->granted, $work]);
"""


def test_an_estimate_that_never_fits_is_clamped_to_the_capacity(daemon):
    assert run(CLAMP, daemon.socket) == '[100,false,null,60,"done"]'
