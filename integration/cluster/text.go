package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// errEnough ends the walk of GatherText.
var errEnough = errors.New("enough text")

// GatherText writes at least size bytes of real text, Go source found on this
// machine, to path. Every line ends with a newline and is shorter than 64 KiB.
func GatherText(path string, size int) error {
	out, err := exec.Command("go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return fmt.Errorf("ask go for its folders: %w", err)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	have := 0
	add := func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil || len(text) == 0 || longLine(text) {
			return err
		}
		if text[len(text)-1] != '\n' {
			text = append(text, '\n')
		}
		n, err := f.Write(text)
		if have += n; err == nil && have >= size {
			return errEnough
		}
		return err
	}
	for have < size {
		before := have
		for _, root := range strings.Fields(string(out)) {
			if err := filepath.WalkDir(root, add); errors.Is(err, errEnough) {
				return nil
			} else if err != nil {
				return err
			}
		}
		if have == before {
			return errors.New("no Go source was found on this machine")
		}
	}
	return nil
}

func longLine(text []byte) bool {
	for len(text) > 0 {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		if len(line) >= 64<<10 {
			return true
		}
		text = rest
	}
	return false
}
