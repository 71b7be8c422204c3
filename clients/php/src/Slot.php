<?php

declare(strict_types=1);

namespace Ratelimitd;

/** A slot of a concurrency limit; it ends with release(), with the client, or with the process. */
final class Slot
{
    private bool $isReleased = false;

    /** @internal */
    public function __construct(private Client $client, private int $connection, private string $id)
    {
    }

    /**
     * Gives the slot back. It throws nothing: a slot whose release cannot be written in time ends with its connection.
     *
     * @return bool true: the daemon freed it now; false: it was released before, or lost
     */
    public function release(?float $timeout = null): bool
    {
        if ($this->isReleased || $this->isLost()) {
            return false;
        }
        $isFreed = $this->client->release($this->id, $timeout);
        $this->isReleased = $this->connection === $this->client->connectionNumber();
        return $isFreed;
    }

    /** Its connection has ended, and the slot with it. */
    public function isLost(): bool
    {
        return !$this->isReleased && $this->connection !== $this->client->connectionNumber();
    }

    public function isHeld(): bool
    {
        return !$this->isReleased && !$this->isLost();
    }
}
