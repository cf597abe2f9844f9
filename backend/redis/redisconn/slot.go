package redisconn

import (
	"fmt"
	"strings"
	"time"
)

// slotMaster finds the master of one slot; see master.
type slotMaster struct {
	*cluster
	slot int
}

func (s slotMaster) limit() time.Duration { return s.timeout }

// query returns the master of the slot.
func (s slotMaster) query([]string) (answer, error) {
	nodes, err := s.read()
	if err != nil {
		return answer{}, err
	}
	var best answer
	for _, n := range nodes {
		if n.Owns(s.slot) && (best.master == "" || n.epoch > best.epoch) {
			best = answer{master: n.Addr, epoch: n.epoch}
		}
	}
	if best.master == "" {
		return answer{}, fmt.Errorf("slot %d of the cluster has no master", s.slot)
	}
	return best, nil
}

// forget makes the next read query the nodes.
func (s slotMaster) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readAt = time.Time{}
}

// slotOf returns the cluster slot of a key: CRC-16/XMODEM of the text in its first braces, or of the whole key, modulo
// 16384 (the Redis Cluster specification).
func slotOf(key string) int {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if j := strings.IndexByte(key[i+1:], '}'); j > 0 {
			key = key[i+1 : i+1+j]
		}
	}
	crc := uint16(0)
	for _, b := range []byte(key) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % 16384
}
