package ratelimit

import (
	"encoding/binary"
	"errors"
)

// Bounds of what the daemon may send.
const (
	answerMax  = 4 << 20      // bytes
	nestingMax = 16           // arrays and maps within each other
	valuesMax  = 2 * callsMax // of one array or map; more than one request can ask about
)

var (
	errOutOfRange = errors.New("a number that the protocol does not have")
	errTooLong    = errors.New("an answer of more than 4 MiB")
	errTooMany    = errors.New("a list of more than 131072")
	errTooDeep    = errors.New("an answer nested deeper than 16")
	errWrongType  = errors.New("bytes that are no answer")
)

// A scanner finds the end of one MessagePack value in bytes that arrive in any pieces. It looks at each byte once, and
// refuses a value as soon as the value can no longer be within the bounds.
type scanner struct {
	at    int // how far the value has been looked at
	depth int
	left  [nestingMax]uint64 // values that each open array or map still lacks
}

// scan goes on with the value at the beginning of data. It returns the value's length, or 0 if more bytes are needed.
// After a length it is ready for the next value.
func (s *scanner) scan(data []byte) (int, error) {
	for {
		head, body, values, err := header(data[s.at:])
		switch {
		case err != nil:
			return 0, err
		case values > valuesMax:
			return 0, errTooMany
		case uint64(s.at)+head+body > answerMax:
			return 0, errTooLong
		case head == 0 || uint64(len(data)-s.at) < head+body:
			return 0, nil
		}
		s.at += int(head + body)

		if values > 0 {
			if s.depth == nestingMax {
				return 0, errTooDeep
			}
			s.left[s.depth] = values
			s.depth++
		} else {
			for s.depth > 0 {
				if s.left[s.depth-1]--; s.left[s.depth-1] > 0 {
					break
				}
				s.depth--
			}
		}

		if s.depth == 0 {
			length := s.at
			s.at = 0
			return length, nil
		}
	}
}

// header reads the first bytes of a value: the length of its header (0: more bytes are needed) and of the text behind
// it, and the number of values that follow.
func header(data []byte) (head, body, values uint64, err error) {
	if len(data) == 0 {
		return 0, 0, 0, nil
	}

	first := data[0]
	switch {
	case first <= 0x7f || first >= 0xe0: // a small integer
		return 1, 0, 0, nil
	case first <= 0x8f:
		return 1, 0, 2 * uint64(first&0x0f), nil
	case first <= 0x9f:
		return 1, 0, uint64(first & 0x0f), nil
	case first <= 0xbf:
		return 1, uint64(first & 0x1f), 0, nil
	}

	var n uint64
	size := lengthSize[first-0xc0]
	if size > 0 {
		if len(data) < 1+size {
			return 0, 0, 0, nil
		}
		var padded [8]byte
		copy(padded[8-size:], data[1:1+size])
		n = binary.BigEndian.Uint64(padded[:])
	}

	head = 1 + uint64(size)
	switch first {
	case 0xc0, 0xc2, 0xc3: // nil, false, true
		return 1, 0, 0, nil
	case 0xc4, 0xc5, 0xc6, 0xd9, 0xda, 0xdb: // bin, str
		return head, n, 0, nil
	case 0xca, 0xcc, 0xcd, 0xce, 0xcf, 0xcb, 0xd0, 0xd1, 0xd2, 0xd3: // numbers
		return head, 0, 0, nil
	case 0xdc, 0xdd:
		return head, 0, n, nil
	case 0xde, 0xdf:
		return head, 0, 2 * n, nil
	}
	return 0, 0, 0, errWrongType // 0xc1, ext
}

// lengthSize has, for the first bytes 0xc0 to 0xdf, how many bytes of a number or a length follow.
var lengthSize = [32]int{
	0xc4 - 0xc0: 1, 0xc5 - 0xc0: 2, 0xc6 - 0xc0: 4,
	0xca - 0xc0: 4, 0xcb - 0xc0: 8,
	0xcc - 0xc0: 1, 0xcd - 0xc0: 2, 0xce - 0xc0: 4, 0xcf - 0xc0: 8,
	0xd0 - 0xc0: 1, 0xd1 - 0xc0: 2, 0xd2 - 0xc0: 4, 0xd3 - 0xc0: 8,
	0xd9 - 0xc0: 1, 0xda - 0xc0: 2, 0xdb - 0xc0: 4,
	0xdc - 0xc0: 2, 0xdd - 0xc0: 4, 0xde - 0xc0: 2, 0xdf - 0xc0: 4,
}
