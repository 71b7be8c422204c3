<?php

declare(strict_types=1);

namespace Ratelimitd;

/** Keys from requests. */
final class Key
{
    private const ONCE_MS = 86_400_000; // PHP-FPM forgets that it has warned: once a day

    /**
     * The client's address: the peer's, or, if the peer is a trusted proxy, the last address of X-Forwarded-For that is
     * not. An IPv6 address counts by its first $prefix bits.
     *
     * @param string[]|int $trusted addresses and networks of your own proxies, or how many of them stand in front
     * @param string $header the one field to believe, from trusted peers only
     * @return callable(object): string of a request of PSR-7, Symfony or Laravel
     */
    public static function ip(array|int $trusted = [], int $prefix = 64, string $header = 'X-Forwarded-For'): callable
    {
        return static function (object $request) use ($trusted, $prefix, $header): string {
            $forwarded = Requests::lines($request, $header);
            $isTrusting = $trusted !== [] && $trusted !== 0;
            if ($forwarded !== [] && !$isTrusting && !Requests::hasTrust($request) && Shared::isTime('said.proxy', self::ONCE_MS)) {
                error_log("ratelimitd: $header arrives, but no proxy is trusted: behind a proxy, all clients share its address");
            }
            $peer = $isTrusting ? Requests::peer($request) : Requests::client($request);
            return self::ofAddress($peer, $forwarded, $trusted, $prefix, $header);
        };
    }

    /**
     * What a form has in this field, in small letters and without blanks around it; "-" if it is missing, empty, or no text.
     *
     * @return callable(object): string of a request of PSR-7, Symfony or Laravel
     */
    public static function field(string $name): callable
    {
        return static function (object $request) use ($name): string {
            $text = strtolower(trim(Requests::field($request, $name) ?? ''));
            return $text === '' ? '-' : $text;
        };
    }

    /**
     * Several keys as one. If one of them is null or empty, there is no key; if one is NOT_LIMITED, the request is not limited.
     *
     * @param string|callable(object): (string|NotLimited|null) ...$parts texts, and functions of the request
     * @return callable(object): (string|NotLimited|null)
     */
    public static function composite(string|callable ...$parts): callable
    {
        if ($parts === [] || in_array('', $parts, true)) {
            throw new \InvalidArgumentException('a part of a key is empty');
        }
        return static function (object $request) use ($parts): string|NotLimited|null {
            $texts = array_map(static fn (mixed $part): mixed => is_string($part) ? $part : $part($request), array_values($parts));
            if (in_array(Limit::NOT_LIMITED, $texts, true)) {
                return Limit::NOT_LIMITED;
            }
            $texts = array_map(static fn (mixed $text): string => (string) $text, $texts);
            return in_array('', $texts, true) ? null : self::join(...$texts);
        };
    }

    /**
     * @param ?string $peer the address of the connection
     * @param string[] $forwarded the values of the field, in order
     */
    public static function ofAddress(
        ?string $peer,
        array $forwarded = [],
        array|int $trusted = [],
        int $prefix = 64,
        string $header = 'X-Forwarded-For',
    ): string {
        $hops = array_map('trim', $forwarded === [] ? [] : explode(',', implode(',', $forwarded)));
        if ($header !== 'X-Forwarded-For') {
            $hops = array_slice($hops, -1);
        }
        $hops[] = $peer;
        $networks = is_int($trusted) ? [] : array_map(self::network(...), $trusted);

        $found = null;
        for ($i = count($hops) - 1, $passed = 0; $i >= 0; $i--, $passed++) {
            $bits = self::bits($hops[$i]);
            $isPeer = $i === count($hops) - 1;
            if ($bits === null && !($isPeer && is_int($trusted) && $trusted > 0)) {
                break;
            }
            $found = $bits ?? $found;
            $isTrusted = is_int($trusted) ? $passed < $trusted : self::isWithin($bits, $networks);
            if (!$isTrusted) {
                break;
            }
        }
        if ($found === null) {
            throw new \InvalidArgumentException('no address to limit by: ' . var_export($peer, true));
        }
        return self::text($found, $prefix);
    }

    /** The user, or the address if there is no user; the two never meet. An empty user is no key. */
    public static function user(?string $user, string $address): string
    {
        if ($user === '') {
            return '';
        }
        return $user === null ? self::join('i', $address) : self::join('u', $user);
    }

    /** Parts in one key: with | between them, and escaped where they have one. */
    public static function join(string ...$parts): string
    {
        if (in_array('', $parts, true)) {
            throw new \InvalidArgumentException('a part of a key is empty');
        }
        return implode('|', array_map(static fn (string $part): string => strtr($part, ['%' => '%25', '|' => '%7C']), $parts));
    }

    /** For secrets, such as a token: 64 hex digits. */
    public static function hashed(string $secret): string
    {
        return $secret === '' ? throw new \InvalidArgumentException('an empty secret') : hash('sha256', $secret);
    }

    private const WRITTEN = '/^(?:\[(?<bracketed>[^][]+)\](?::\d{1,5})?|(?<ipv4>[0-9.]+):\d{1,5}|(?<bare>[^][]+))$/D';

    /** An address as 4 or 16 bytes; null if it is not one. Brackets, port and zone go; IPv4-mapped becomes IPv4. */
    private static function bits(?string $address): ?string
    {
        if (!preg_match(self::WRITTEN, trim($address ?? ''), $found, PREG_UNMATCHED_AS_NULL)) {
            return null;
        }
        [$text, $zone] = explode('%', $found['bracketed'] ?? $found['ipv4'] ?? $found['bare'], 2) + [1 => null];
        $bits = filter_var($text, FILTER_VALIDATE_IP) === false ? false : inet_pton($text);
        if ($bits === false || (strlen($bits) === 4 && $zone !== null)) {
            return null;
        }
        return str_starts_with($bits, str_repeat("\0", 10) . "\xff\xff") && strlen($bits) === 16 ? substr($bits, 12) : $bits;
    }

    private static function text(string $bits, int $prefix): string
    {
        if (strlen($bits) === 4) {
            return inet_ntop($bits);
        }
        return inet_ntop($bits & self::mask(16, $prefix)) . ($prefix < 128 ? "/$prefix" : '');
    }

    private static function mask(int $bytes, int $length): string
    {
        $mask = str_repeat("\xff", intdiv($length, 8)) . ($length % 8 ? chr(0xff << (8 - $length % 8) & 0xff) : '');
        return str_pad($mask, $bytes, "\0");
    }

    /** @return array{string, int} bytes and length of a network */
    private static function network(string $text): array
    {
        [$address, $length] = explode('/', $text, 2) + [1 => null];
        $bits = self::bits($address);
        if ($bits === null || ($length !== null && (!preg_match('/^\d{1,3}$/', $length) || $length > 8 * strlen($bits)))) {
            throw new \InvalidArgumentException("a trusted proxy is an address or a network, not " . var_export($text, true));
        }
        return [$bits, (int) ($length ?? 8 * strlen($bits))];
    }

    private static function isWithin(?string $bits, array $networks): bool
    {
        foreach ($networks as [$network, $length]) {
            $mask = self::mask(strlen($network), $length);
            if ($bits !== null && strlen($bits) === strlen($network) && ($bits & $mask) === ($network & $mask)) {
                return true;
            }
        }
        return false;
    }
}
