// Command mpi-operator runs the controller of MPIJob v2beta1 off-cluster, on
// loopback and without leader election. Upstream's own main listens on port
// 8080 of all addresses.
package main

import (
	"context"
	"flag"
	"net/http"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/kubeflow/mpi-operator/cmd/mpi-operator/app/options"
	"github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned"
	"github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned/scheme"
	mpiinformers "github.com/kubeflow/mpi-operator/pkg/client/informers/externalversions"
	"github.com/kubeflow/mpi-operator/pkg/controller"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file")
	health := flag.String("health-probe-bind-address", "127.0.0.1:8382", "health probe address")
	threads := flag.Int("controller-threads", 4, "concurrent reconciles")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		klog.Fatal(err)
	}
	config.QPS, config.Burst = 1000, 2000
	if err := scheme.AddToScheme(clientgoscheme.Scheme); err != nil {
		klog.Fatal(err)
	}
	kube, mpi := kubernetes.NewForConfigOrDie(config), versioned.NewForConfigOrDie(config)
	ctx := context.Background()
	base, own := informers.NewSharedInformerFactory(kube, 0), mpiinformers.NewSharedInformerFactory(mpi, 0)
	made, err := controller.NewMPIJobController(
		ctx, kube, mpi, nil, nil,
		base.Core().V1().ConfigMaps(), base.Core().V1().Secrets(), base.Core().V1().Services(),
		base.Batch().V1().Jobs(), base.Core().V1().Pods(), base.Scheduling().V1().PriorityClasses(),
		own.Kubeflow().V2beta1().MPIJobs(),
		&options.ServerOption{ControllerRateLimit: 1000, ControllerBurst: 2000},
	)
	if err != nil {
		klog.Fatal(err)
	}
	base.Start(ctx.Done())
	own.Start(ctx.Done())
	http.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	go func() { klog.Fatal(http.ListenAndServe(*health, nil)) }()
	klog.Fatal(made.Run(*threads, ctx.Done()))
}
