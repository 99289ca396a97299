#!/usr/bin/env python3
"""Train GPyTorch's deep GP for time_to_quality.py, in an environment of its own:

    python3.11 -m venv ENV
    ENV/bin/pip install gpytorch==1.15 torch==2.13.0+cpu --extra-index-url https://download.pytorch.org/whl/cpu

    time_to_quality.py --gpytorch=ENV/bin/python ...

The architecture of GPyTorch's deep GP example: every output has its own kernel (squared exponential, ARD, with an
output scale) and its own inducing inputs, a full covariance of q(u), whitened; a linear mean in the inner layer, a
constant one in the last; float32; Adam trains everything. Of its sizes, the inner width (as many as inputs), the number
of inducing inputs, the minibatch and the number of draws (one) are those of the others. Three things are in its favour:
inducing inputs start at the centres of k-means; each inner output has a linear mean of its own that starts at an input,
where the example has one random line for all (--start=random); and denormal numbers count as 0, which is faster.
"""

import sys

import gpytorch
import torch
import turns
from gpytorch.distributions import MultivariateNormal
from gpytorch.means import ConstantMean, LinearMean
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy


class Layer(DeepGPLayer):
    """One layer; `output_dims` None for a single output."""

    def __init__(self, Z: torch.Tensor, output_dims: int | None, mean: torch.nn.Module) -> None:
        shape = torch.Size([] if output_dims is None else [output_dims])
        D = Z.shape[1]
        q = CholeskyVariationalDistribution(len(Z), batch_shape=shape)
        inducing_points = Z.expand(*shape, *Z.shape).clone()
        super().__init__(VariationalStrategy(self, inducing_points, q, learn_inducing_locations=True), D, output_dims)
        self.mean_module = mean
        kernel = gpytorch.kernels.RBFKernel(batch_shape=shape, ard_num_dims=D)
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel, batch_shape=shape)

    def forward(self, x: torch.Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Model(DeepGP):
    """Two layers."""

    def __init__(self, Z: torch.Tensor, start: str) -> None:
        super().__init__()
        D = Z.shape[1]
        mean = LinearMean(D) if start == "random" else LinearMean(D, batch_shape=torch.Size([D]))
        if start == "identity":
            mean.weights.data = torch.eye(D)[:, :, None]
            mean.bias.data.zero_()
        self.inner = Layer(Z, D, mean)
        self.last = Layer(Z, None, ConstantMean())
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()

    def forward(self, x: torch.Tensor) -> MultivariateNormal:
        return self.last(self.inner(x))


def main() -> None:
    start = "identity"
    for argument in [argument for argument in sys.argv if argument.startswith("--start=")]:
        start = argument.removeprefix("--start=")
        sys.argv.remove(argument)
    # Threads, seed and rows as for all programs that take turns.
    args = turns.arguments(__doc__)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(args.seed)
    data = turns.load(args.data)
    X, Y, X_test, Z = (torch.tensor(a, dtype=torch.float32) for a in (data.X, data.Y[:, 0], data.X_test, data.Z))
    # The bound of GPyTorch, by Adam at the same rate.
    model = Model(Z, start)
    bound = gpytorch.mlls.DeepApproximateMLL(gpytorch.mlls.VariationalELBO(model.likelihood, model, len(X)))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.rate)

    def step(rows: object) -> None:
        with gpytorch.settings.num_likelihood_samples(1):
            optimizer.zero_grad()
            loss = -bound(model(X[rows]), Y[rows])
            loss.backward()
            optimizer.step()

    def score() -> float:
        model.eval()
        with torch.no_grad(), gpytorch.settings.num_likelihood_samples(turns.NUM_DRAWS):
            predicted = model.likelihood(model(X_test))
        model.train()
        means, variances = (part.double().numpy() for part in (predicted.mean, predicted.variance))
        return turns.mean_log_density(means, variances, data)

    turns.train(step, score, data, args)


if __name__ == "__main__":
    main()
