<?php

/** For programs without Composer: `require 'src/autoload.php';` finds every class of this package. */

declare(strict_types=1);

spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'Ratelimitd\\')) {
        $path = __DIR__ . '/' . strtr(substr($class, strlen('Ratelimitd\\')), '\\', '/') . '.php';
        is_file($path) && require_once $path;
    }
});
