<?php

declare(strict_types=1);

namespace Ratelimitd;

/** The part of MessagePack that the protocol uses. Own code, because it must distinguish an unfinished answer from a broken one. */
final class MessagePack
{
    public const BYTES_MAX = 4 << 20;
    public const DEPTH_MAX = 16;
    public const MEMBERS_MAX = 65536;

    /** Lists become arrays, other arrays and objects maps. */
    public static function pack(mixed $value): string
    {
        return match (true) {
            $value === null => "\xc0",
            is_bool($value) => $value ? "\xc3" : "\xc2",
            is_int($value) => self::packInteger($value),
            is_string($value) => match (true) {
                strlen($value) < 32 => chr(0xa0 | strlen($value)),
                strlen($value) < 256 => "\xd9" . chr(strlen($value)),
                strlen($value) < 65536 => "\xda" . pack('n', strlen($value)),
                default => "\xdb" . pack('N', strlen($value)),
            } . $value,
            is_array($value) && array_is_list($value) =>
                self::packSize(count($value), 0x90, "\xdc", "\xdd") . implode('', array_map(self::pack(...), $value)),
            is_array($value), is_object($value) => self::packMap((array) $value),
            default => throw new \InvalidArgumentException('a ' . get_debug_type($value) . ' cannot be sent'),
        };
    }

    private static function packInteger(int $value): string
    {
        return match (true) {
            $value >= 0 && $value < 128 => chr($value),
            $value >= 0 => "\xcf" . pack('J', $value),
            default => "\xd3" . pack('J', $value),
        };
    }

    private static function packSize(int $size, int $small, string $wide, string $wider): string
    {
        return $size < 16 ? chr($small | $size) : ($size < 65536 ? $wide . pack('n', $size) : $wider . pack('N', $size));
    }

    private static function packMap(array $map): string
    {
        $bytes = self::packSize(count($map), 0x80, "\xde", "\xdf");
        foreach ($map as $name => $value) {
            $bytes .= self::pack((string) $name) . self::pack($value);
        }
        return $bytes;
    }

    /**
     * One value. $read(n) returns exactly n bytes, or throws.
     *
     * @param callable(int): string $read
     */
    public static function unpack(callable $read): mixed
    {
        $budget = self::BYTES_MAX;
        return self::unpackValue($read, $budget, 1);
    }

    private static function unpackValue(callable $read, int &$budget, int $depth): mixed
    {
        if ($depth > self::DEPTH_MAX) {
            throw new Unavailable('protocol', 'an answer is nested too deeply', true);
        }
        $tag = ord($read(1));
        $budget--;
        if ($tag < 0x80) {
            return $tag;
        }
        if ($tag >= 0xe0) {
            return $tag - 256;
        }

        [$kind, $size] = match (true) {
            $tag < 0x90 => ['map', $tag & 15],
            $tag < 0xa0 => ['array', $tag & 15],
            $tag < 0xc0 => ['text', $tag & 31],
            $tag === 0xc0 => ['nil', 0],
            $tag === 0xc2, $tag === 0xc3 => ['bool', $tag & 1],
            $tag >= 0xc4 && $tag <= 0xc6 => ['text', self::number($read, 1 << ($tag - 0xc4))],
            $tag >= 0xcc && $tag <= 0xcf => ['number', self::number($read, 1 << ($tag - 0xcc))],
            $tag >= 0xd0 && $tag <= 0xd3 => ['number', self::signed($read, 1 << ($tag - 0xd0))],
            $tag >= 0xd9 && $tag <= 0xdb => ['text', self::number($read, 1 << ($tag - 0xd9))],
            $tag === 0xdc, $tag === 0xdd => ['array', self::number($read, 2 << ($tag - 0xdc))],
            $tag === 0xde, $tag === 0xdf => ['map', self::number($read, 2 << ($tag - 0xde))],
            default => throw new Unavailable('protocol', sprintf('an answer has the byte 0x%02x', $tag), true),
        };
        if ($kind === 'number') {
            return $size;
        }
        if ($kind === 'nil' || $kind === 'bool') {
            return $kind === 'nil' ? null : $size === 1;
        }

        // Each member has at least a byte, so a size that cannot arrive is refused before anything is kept for it.
        if ($size > $budget) {
            throw new Unavailable('protocol', 'an answer is longer than 4 MiB', true);
        }
        if ($kind === 'text') {
            $budget -= $size;
            return $size === 0 ? '' : $read($size);
        }
        if ($size > self::MEMBERS_MAX) {
            throw new Unavailable('protocol', 'an answer has more than 65536 members', true);
        }
        $result = [];
        for ($i = 0; $i < $size; $i++) {
            $name = $kind === 'map' ? self::unpackValue($read, $budget, $depth + 1) : $i;
            $member = self::unpackValue($read, $budget, $depth + 1);
            if (is_int($name) || is_string($name)) {
                $result[$name] = $member;
            }
        }
        return $result;
    }

    private static function number(callable $read, int $width): int
    {
        $number = 0;
        foreach (str_split($read($width)) as $byte) {
            $number = ($number << 8) | ord($byte);
        }
        if ($number < 0) {
            throw new Unavailable('protocol', 'an answer has a number above 2^63', true);
        }
        return $number;
    }

    private static function signed(callable $read, int $width): int
    {
        $number = 0;
        foreach (str_split($read($width)) as $byte) {
            $number = ($number << 8) | ord($byte);
        }
        return $width < 8 && $number >> (8 * $width - 1) ? $number - (1 << (8 * $width)) : $number;
    }
}
