package ratelimit

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/tinylib/msgp/msgp"
)

func TestTheScannerFindsTheEndOfEachMessageInAnyPieces(t *testing.T) {
	var stream []byte
	var lengths []int
	for _, value := range []any{
		nil, true, -1, 1 << 40, "text", bytes.Repeat([]byte("b"), 300), 1.5, []any{}, map[string]any{},
		[]any{1, []any{map[string]any{"a": []any{nil}}}, "x"}, map[string]any{"k": make([]any, 70000)},
		string(make([]byte, 70000)),
	} {
		packed, err := msgp.AppendIntf(nil, value)
		if err != nil {
			t.Fatal(err)
		}
		stream, lengths = append(stream, packed...), append(lengths, len(packed))
	}

	random := rand.New(rand.NewPCG(1, 2))
	for _, most := range []int{1, 7, 4096, len(stream)} {
		var s scanner
		var found []int
		begin, end := 0, 0
		for end < len(stream) {
			end = min(len(stream), end+1+random.IntN(most))
			for begin < end {
				length, err := s.scan(stream[begin:end])
				if err != nil {
					t.Fatal(err)
				}
				if length == 0 {
					break
				}
				found, begin = append(found, length), begin+length
			}
		}
		if len(found) != len(lengths) {
			t.Fatalf("in pieces of %d: %v", most, found)
		}
		for i := range found {
			if found[i] != lengths[i] {
				t.Fatalf("in pieces of %d: %v, not %v", most, found, lengths)
			}
		}
	}
}

func FuzzScanner(f *testing.F) {
	f.Add([]byte{0x94, 0x01, 0x01, 0xc0, 0x81, 0xa1, 'a', 0xc3})
	f.Add([]byte{0xdd, 0x00, 0x0f, 0x42, 0x40})
	f.Fuzz(func(t *testing.T, data []byte) {
		var whole, pieces scanner
		length, err := whole.scan(data)
		for n := 1; n <= len(data); n++ {
			got, gotErr := pieces.scan(data[:n])
			if gotErr != nil {
				if err == nil && length == 0 || err == nil && n <= length {
					t.Fatal(gotErr)
				}
				return
			}
			if got != 0 {
				if got != length || n != length {
					t.Fatal(got, n, length)
				}
				if rest, err := msgp.Skip(data[:n]); err != nil || len(rest) != 0 {
					t.Fatal(err, rest)
				}
				readAnswer(data[:n], 1, nil)
				return
			}
		}
		if length != 0 {
			t.Fatal(length)
		}
	})
}
