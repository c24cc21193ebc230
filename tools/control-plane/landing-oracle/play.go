package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"sigs.k8s.io/scheduler-library/pkg/upstreamsync"
)

// try plays every order with every way to pick, up to the first that fails.
func (o *oracle) try(ctx context.Context, asked *Case) (Answer, error) {
	answer := Answer{Name: asked.Name}
	there := slices.Clone(asked.Foreign)
	for _, pod := range there {
		pod.UID = types.UID(pod.Name)
	}
	var waiting []*member
	for i := range asked.Gangs {
		for _, pod := range asked.Gangs[i].Pods {
			if pod.Spec.NodeName == "" {
				set := pod.Name[:strings.LastIndex(pod.Name, "-")]
				waiting = append(waiting, &member{pod: pod, gang: &asked.Gangs[i], set: set})
			} else {
				there = append(there, pod)
			}
			pod.UID = types.UID(pod.Name)
		}
	}
	*o.snapshot = *cache.NewSnapshot(there, asked.Nodes)
	for _, each := range waiting {
		found, _, err := o.open(ctx, each.pod)
		if err != nil {
			return answer, err
		}
		each.options = map[string]bool{}
		for _, name := range found {
			each.options[name] = true
		}
	}
	for _, way := range orders(waiting, asked.Seed, asked.Shuffles) {
		for _, pick := range o.picks {
			if way.victim != nil && pick != steal {
				continue
			}
			draw := rand.New(rand.NewSource(asked.Seed))
			failed, placed, err := o.play(ctx, asked, there, way, pick, draw)
			if err != nil {
				return answer, err
			}
			answer.Runs++
			answer.Placed += placed
			if failed != nil {
				answer.Failed = failed
				return answer, nil
			}
		}
	}
	return answer, nil
}

// play places the pods of one order. A pod with rules about others needs a new snapshot: assumed pods have none there.
func (o *oracle) play(
	ctx context.Context, asked *Case, there []*v1.Pod, way order, pick string, draw *rand.Rand,
) (*Failure, int, error) {
	there = slices.Clone(there)
	*o.snapshot = *cache.NewSnapshot(there, asked.Nodes)
	failed := Failure{Order: way.name, Pick: pick, Trail: [][2]string{}}
	for i, each := range way.pods {
		node, message, err := o.choose(ctx, way, i, pick, draw)
		if err != nil {
			return nil, i, err
		}
		if node == "" {
			failed.Gang, failed.Pod, failed.Message = each.gang.UID, each.pod.Name, message
			return &failed, i, nil
		}
		failed.Trail = append(failed.Trail, [2]string{each.pod.Name, node})
		bound := *each.pod
		bound.Spec.NodeName = node
		there = append(there, &bound)
		if rules := each.pod.Spec.Affinity; rules != nil && (rules.PodAntiAffinity != nil || rules.PodAffinity != nil) {
			*o.snapshot = *cache.NewSnapshot(there, asked.Nodes)
			continue
		}
		info, err := framework.NewPodInfo(&bound)
		if err != nil {
			return nil, i, err
		}
		if err = o.snapshot.AssumePod(info); err != nil {
			return nil, i, err
		}
	}
	if gang, message := outside(asked, there); gang != "" {
		failed.Gang, failed.Message = gang, message
		return &failed, len(way.pods), nil
	}
	return nil, len(way.pods), nil
}

// choose names a node for a pod of an order, or says in kube-scheduler's words why there is none.
func (o *oracle) choose(
	ctx context.Context, way order, number int, pick string, draw *rand.Rand,
) (string, string, error) {
	each := way.pods[number]
	if pick != chaos && pick != steal {
		info, err := framework.NewPodInfo(each.pod)
		if err != nil {
			return "", "", err
		}
		pending := &upstreamsync.PendingPod{PodInfo: info, CycleState: framework.NewCycleState()}
		found, undo := o.scheduler().SchedulePod(ctx, o.profiles.Map[pick], pending)
		if !found.Status.IsSuccess() {
			return "", found.Status.Message(), nil
		}
		undo()
		return found.ScheduleResult.SuggestedHost, "", nil
	}
	found, message, err := o.open(ctx, each.pod)
	if err != nil || len(found) == 0 {
		return "", message, err
	}
	draw.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	if pick == steal {
		slices.SortStableFunc(found, func(a, b string) int {
			return cmp.Compare(needed(a, each, way, number), needed(b, each, way, number))
		})
	}
	return found[0], "", nil
}

// needed is the fewest nodes, this one among them, that a later pod of another set can choose from; 0 for the victim's.
func needed(node string, each *member, way order, number int) int {
	if way.victim != nil && way.victim.options[node] {
		return 0
	}
	least := math.MaxInt
	for _, other := range way.pods[number+1:] {
		if other.options[node] && other.set != each.set {
			least = min(least, len(other.options))
		}
	}
	return least
}

// open lists the nodes that pass the filters of the default profile, by name, or why there is none.
func (o *oracle) open(ctx context.Context, pod *v1.Pod) ([]string, string, error) {
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return nil, "", err
	}
	pending := &upstreamsync.PendingPod{PodInfo: info, CycleState: framework.NewCycleState()}
	nodes, diagnosis, _, err := o.scheduler().
		FindAllNodesThatFitPod(ctx, o.profiles.Map[plain], pending)
	if err != nil {
		return nil, "", err
	}
	if len(nodes) == 0 {
		why := framework.FitError{Pod: pod, NumAllNodes: o.snapshot.NumNodesInPlacement(), Diagnosis: diagnosis}
		return nil, why.Error(), nil
	}
	var names []string
	for _, node := range nodes {
		names = append(names, node.Node().Name)
	}
	slices.Sort(names)
	return names, "", nil
}

// outside names a gang that left its pin or its level.
func outside(asked *Case, there []*v1.Pod) (string, string) {
	labels, at := map[string]map[string]string{}, map[string]string{}
	for _, node := range asked.Nodes {
		labels[node.Name] = node.Labels
	}
	for _, pod := range there {
		at[pod.Name] = pod.Spec.NodeName
	}
	for _, gang := range asked.Gangs {
		values := map[string]bool{}
		for _, pod := range gang.Pods {
			node := at[pod.Name]
			if !slices.Contains(gang.Hosts, node) {
				return gang.UID, pod.Name + " landed outside its pin on " + node
			}
			values[labels[node][gang.Level]] = true
		}
		if gang.Level != "" && len(values) > 1 {
			return gang.UID, fmt.Sprintf("landed in %d domains of %s", len(values), gang.Level)
		}
	}
	return "", ""
}

func (o *oracle) scheduler() *upstreamsync.Scheduler {
	return upstreamsync.NewScheduler(o.snapshot, 0, 0, int32(o.snapshot.NumNodesInPlacement()))
}
