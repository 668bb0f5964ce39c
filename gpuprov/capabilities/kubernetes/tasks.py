"""The tasks of the role."""

from gpuprov.capabilities.tasks import Stages, files, step

TASKS: Stages = {
    "configure": (files("Write the Kubernetes configuration"),),
    "service": (
        step(
            "Label the node with the kubelet's credentials",
            "command",
            "label",
            why="A kubelet may set labels of its own node outside of kubernetes.io; --node-labels would only hold "
            "when the node is "
            "registered: "
            "https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction",
        ),
    ),
}
