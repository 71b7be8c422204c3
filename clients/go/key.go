package ratelimit

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Keys of more bytes than keyMax are sent as their first bytes and a hash of all, so that no key from outside can be
// too long for the daemon.
const (
	keyMax  = 512
	keyKept = 64
)

func boundedKey(key string) string {
	if len(key) <= keyMax {
		return key
	}
	return key[:keyKept] + "#" + HashedKey(key)
}

// JoinKey makes one key of several parts, with `|` between them. `|` and `%` within a part are escaped, so that no two
// lists of parts give the same key. If a part is empty, so is the key, and the daemon refuses it.
func JoinKey(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, part := range parts {
		if part == "" {
			return ""
		}
		escaped[i] = strings.ReplaceAll(strings.ReplaceAll(part, "%", "%25"), "|", "%7C")
	}
	return strings.Join(escaped, "|")
}

// HashedKey is for secrets, such as tokens: SHA-256 in 64 hex digits, or "" for "".
func HashedKey(secret string) string {
	if secret == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
