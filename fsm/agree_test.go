package fsm_test

import (
	"bytes"
	"fmt"

	"github.com/weirmq/weir/fsm"
)

// doneCommand is a command of a script and the Image that it gave.
type doneCommand struct {
	index   uint64
	encoded []byte
	gave    *fsm.Image
}

// replay applies commands as another replica does, from their encoding.
func (s *script) replay(im *fsm.Image, done []doneCommand, each func(i int, im *fsm.Image)) {
	for i, c := range done {
		decoded, err := fsm.DecodeCommand(c.encoded)
		if err != nil {
			s.t.Fatalf("%s: decode: %v", s.d.Pos, err)
		}
		im, _ = fsm.Apply(im, c.index, decoded)
		each(i, im)
	}
}

// agree has replicas take all commands so far: one from the first on, and one from each
// snapshot on. Their hashes must be alike after every command.
func (s *script) agree() string {
	for from := range s.done {
		im := fsm.NewImage()
		if from > 0 {
			var snapshot bytes.Buffer
			err := fsm.WriteSnapshot(&snapshot, s.done[from-1].gave)
			if err == nil {
				im, err = fsm.ReadSnapshot(&snapshot)
			}
			if err != nil {
				s.t.Fatalf("%s: %v", s.d.Pos, err)
			}
		}
		parted := ""
		s.replay(im, s.done[from:], func(i int, im *fsm.Image) {
			if want := s.done[from+i].gave; parted == "" && im.Hash() != want.Hash() {
				parted = fmt.Sprintf("a replica that began after command %d has parted at command %d:\n%s", from, from+i+1, show(im))
			}
		})
		if parted != "" {
			return parted
		}
	}
	return fmt.Sprintf("%d replicas agree after each of %d commands\n", len(s.done), len(s.done))
}

// without has a replica take all commands but one, and prints after which its hash is another.
func (s *script) without(command int) string {
	before := fsm.NewImage()
	if command > 1 {
		before = s.done[command-2].gave
	}
	out := ""
	s.replay(before, s.done[command:], func(i int, im *fsm.Image) {
		if im.Hash() != s.done[command+i].gave.Hash() {
			out += fmt.Sprintf(" %d", command+i+1)
		}
	})
	if out == "" {
		return "never differs\n"
	}
	return "differs after" + out + "\n"
}
