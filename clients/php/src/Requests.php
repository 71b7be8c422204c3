<?php

declare(strict_types=1);

namespace Ratelimitd;

/** What is read from a request, be it of PSR-7, or of Symfony's HttpFoundation, which Laravel has too. @internal */
final class Requests
{
    /** @return list<string> the values of a header field, in order */
    public static function lines(object $request, string $name): array
    {
        return method_exists($request, 'getHeader') ? $request->getHeader($name) : $request->headers->all($name);
    }

    /** The address of the connection. */
    public static function peer(object $request): ?string
    {
        return method_exists($request, 'getServerParams')
            ? $request->getServerParams()['REMOTE_ADDR'] ?? null : $request->server->get('REMOTE_ADDR');
    }

    /** The same, or what the framework's own setting of trusted proxies makes of it. */
    public static function client(object $request): ?string
    {
        return method_exists($request, 'getClientIp') ? $request->getClientIp() : self::peer($request);
    }

    /** Has the framework's own setting taken the address from a header field? */
    public static function hasTrust(object $request): bool
    {
        return method_exists($request, 'isFromTrustedProxy') && $request->isFromTrustedProxy();
    }

    /** A field of a form that was sent; null also for one that is no text. */
    public static function field(object $request, string $name): ?string
    {
        $form = method_exists($request, 'getParsedBody') ? $request->getParsedBody() : $request->request->all();
        $value = is_array($form) ? $form[$name] ?? null : null;
        return is_string($value) ? $value : null;
    }
}
