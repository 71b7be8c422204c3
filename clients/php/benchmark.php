<?php

// The measurements of ./bench: benchmark.php SOCKET. Prints a line for each block of checks, the row and the microseconds of
// one check.

declare(strict_types=1);

use Ratelimitd\Client;

require __DIR__ . '/src/autoload.php';

const ROUNDS = 5;
const ROUND_NS = 200_000_000;
const BLOCK = 100;

$path = $argv[1];
$bare = stream_socket_client("unix://$path");
$client = new Client($path, timeout: 10, rememberDenials: 3600);

$rows = [
    'bare socket' => function () use ($bare): void {
        fwrite($bare, "\x94\x00\x01\xa5check\x92\xa5bench\xa1k");
        if (fread($bare, 1024) === '') {
            throw new RuntimeException('no answer');
        }
    },
    'Client' => function () use ($client): void {
        if (!$client->check('bench', 'k')->allowed) {
            throw new RuntimeException('denied');
        }
    },
    'Client, a remembered denial' => function () use ($client): void {
        if ($client->check('full', 'k', 2)->allowed) {
            throw new RuntimeException('allowed');
        }
    },
];

for ($round = 0; $round < ROUNDS; $round++) {
    foreach ($rows as $name => $ask) {
        $ask();
        $until = hrtime(true) + ROUND_NS;
        while (($begun = hrtime(true)) < $until) {
            for ($i = 0; $i < BLOCK; $i++) {
                $ask();
            }
            printf("%s\t%.4f\n", $name, (hrtime(true) - $begun) / 1000 / BLOCK);
        }
    }
}
