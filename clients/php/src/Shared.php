<?php

declare(strict_types=1);

namespace Ratelimitd;

/**
 * Numbers that outlive a request, because PHP-FPM forgets everything else with each one: in APCu if it is there, else in
 * small files of the runtime directory, in a folder that only this user can write. A program of its own (cli) has no
 * other processes to share with, and keeps them in memory.
 *
 * @internal
 */
final class Shared
{
    /** @var array<string, int> those of a program of its own */
    private static array $own = [];

    public static function isOn(): bool
    {
        return PHP_SAPI !== 'cli';
    }

    public static function hasApcu(): bool
    {
        return self::isOn() && function_exists('apcu_enabled') && apcu_enabled();
    }

    /** Milliseconds of a clock that all processes of this host have in common. */
    public static function nowMs(): int
    {
        return intdiv(hrtime(true), 1_000_000);
    }

    /** The number of this name; 0 if there is none. */
    public static function get(string $name): int
    {
        if (!self::isOn()) {
            return self::$own[$name] ?? 0;
        }
        if (self::hasApcu()) {
            return (int) apcu_fetch("ratelimitd.$name");
        }
        $folder = self::folder(false);
        return $folder === null ? 0 : (int) @file_get_contents("$folder/$name");
    }

    /** @return bool false: it was not $old any more, or nothing can be kept */
    public static function replace(string $name, int $old, int $new): bool
    {
        if (!self::isOn()) {
            $isOld = self::get($name) === $old;
            if ($isOld) {
                self::$own[$name] = $new;
            }
            return $isOld;
        }
        if (self::hasApcu()) {
            apcu_add("ratelimitd.$name", 0);
            return apcu_cas("ratelimitd.$name", $old, $new);
        }
        return self::replaceInFile($name, $old, $new);
    }

    /** True at most once in this time. */
    public static function isTime(string $name, int $everyMs): bool
    {
        $now = self::nowMs();
        $next = self::get($name);
        $isEarly = $now < $next && $next <= $now + $everyMs; // a later one is from before the host was started anew
        return !$isEarly && self::replace($name, $next, $now + $everyMs);
    }

    private static function replaceInFile(string $name, int $old, int $new): bool
    {
        $folder = self::folder(true);
        $file = $folder === null ? false : @fopen("$folder/$name", 'c+');
        if ($file === false) {
            return false;
        }
        flock($file, LOCK_EX);
        $isOld = (int) stream_get_contents($file) === $old;
        if ($isOld) {
            ftruncate($file, 0);
            rewind($file);
            fwrite($file, (string) $new);
        }
        fclose($file);
        return $isOld;
    }

    /** The first folder that is ours alone. Another user could otherwise write there that the daemon is not to be asked. */
    private static function folder(bool $make): ?string
    {
        $uid = self::uid();
        foreach ([strtok((string) getenv('RUNTIME_DIRECTORY'), ':'), getenv('XDG_RUNTIME_DIR'), sys_get_temp_dir()] as $parent) {
            $folder = "$parent/ratelimitd-php-$uid";
            if ($parent === false || $parent === '' || ($make && !is_dir($folder) && !@mkdir($folder, 0700))) {
                continue;
            }
            $found = @lstat($folder);
            if ($found !== false && ($found['mode'] & 0170077) === 0040000 && $found['uid'] === $uid) {
                return $folder;
            }
        }
        return null;
    }

    private static function uid(): int
    {
        static $uid = null;
        return $uid ??= function_exists('posix_geteuid') ? posix_geteuid() : fstat(tmpfile())['uid'];
    }
}
