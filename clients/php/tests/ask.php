<?php

/** For the tests of what outlives a request of PHP-FPM: one check, and what came of it. */

declare(strict_types=1);

require __DIR__ . '/../src/autoload.php';

$client = new Ratelimitd\Client(timeout: (int) (getenv('TIMEOUT_MS') ?: 200) / 1000, rememberDenials: 60);
$limiter = new Ratelimitd\Limiter($client);
try {
    if (isset($_GET['reset'])) {
        echo $client->reset('login', 'k') ? 'reset' : 'nothing';
    } else {
        $decision = $client->check($_GET['policy'] ?? 'login', 'k');
        echo ($decision->allowed ? 'allowed ' : 'denied ') . $decision->source;
    }
} catch (Ratelimitd\Unavailable $failure) {
    echo $failure->kind;
    $limiter->quietly(fn () => throw $failure);
}
