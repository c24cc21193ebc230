// Command landing-oracle asks the filters of kube-scheduler whether gangs land.
//
// It reads one case per line from stdin: a cluster, and all pods that plans start there. It answers one line per case.
// It places the pods one by one in several orders. For each order, a node is picked among those that pass the filters:
// by the scores of both profiles, at random, and by an adversary who takes the nodes that others need.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	library "sigs.k8s.io/scheduler-library/pkg/framework"
	"sigs.k8s.io/scheduler-library/pkg/upstreamsync"
)

const (
	plain = "plain-scheduler"
	chaos = "random"
	steal = "adversary"
)

// Case is a line of stdin. Pods that name their node are there already.
type Case struct {
	Name     string     `json:"name"`
	Seed     int64      `json:"seed"`
	Shuffles int        `json:"shuffles"`
	Nodes    []*v1.Node `json:"nodes"`
	Foreign  []*v1.Pod  `json:"foreign"`
	Gangs    []Gang     `json:"gangs"`
}

// Gang may use no other nodes than Hosts. Level: the node label of which all its pods must see one value, or empty.
type Gang struct {
	UID   string    `json:"uid"`
	Level string    `json:"level"`
	Hosts []string  `json:"hosts"`
	Pods  []*v1.Pod `json:"pods"`
}

// Answer is a line of stdout. Failed is nil where every pod found a node each time.
type Answer struct {
	Name   string   `json:"name"`
	Runs   int      `json:"runs"`
	Placed int      `json:"placed"`
	Failed *Failure `json:"failed"`
}

// Failure names the first pod without a node. Trail: the pods placed before it, each with its node.
type Failure struct {
	Order   string      `json:"order"`
	Pick    string      `json:"pick"`
	Gang    string      `json:"gang"`
	Pod     string      `json:"pod"`
	Message string      `json:"message"`
	Trail   [][2]string `json:"trail"`
}

type oracle struct {
	snapshot *cache.Snapshot
	profiles *upstreamsync.ProfileMap
	picks    []string
}

func main() {
	file := flag.String("config", "", "configuration of kube-scheduler; its first profile is played beside the default one")
	flag.Parse()
	ctx := context.Background()
	judge, err := newOracle(ctx, *file)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	reader, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	reader.Buffer(nil, math.MaxInt32)
	for reader.Scan() {
		var asked Case
		if err = json.Unmarshal(reader.Bytes(), &asked); err == nil {
			var answer Answer
			if answer, err = judge.try(ctx, &asked); err == nil {
				err = out.Encode(answer)
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, asked.Name, err)
			os.Exit(1)
		}
	}
}

func newOracle(ctx context.Context, file string) (*oracle, error) {
	settings, err := latest.Default()
	if err != nil {
		return nil, err
	}
	settings.Profiles[0].SchedulerName = plain
	picks := []string{plain, chaos, steal}
	if file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		shipped := &config.KubeSchedulerConfiguration{}
		if _, _, err = scheme.Codecs.UniversalDecoder().Decode(data, nil, shipped); err != nil {
			return nil, err
		}
		settings.Profiles = append(settings.Profiles, shipped.Profiles[0])
		picks = append(picks, shipped.Profiles[0].SchedulerName)
	}
	client := fake.NewClientset()
	factory, snapshot := informers.NewSharedInformerFactory(client, 0), cache.NewEmptySnapshot()
	profiles, err := library.NewProfileMap(ctx, client, factory, snapshot, settings)
	if err != nil {
		return nil, err
	}
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	return &oracle{snapshot: snapshot, profiles: profiles, picks: picks}, nil
}
