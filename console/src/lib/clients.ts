// The services, by gRPC-Web on the page's own origin.

import { type Client, createClient, type Interceptor, type Transport } from "@connectrpc/connect";
import { createGrpcWebTransport } from "@connectrpc/connect-web";
import { AdminService } from "../generated/ownergraph/admin/v1beta1/admin_service_pb.ts";
import { DecisionService } from "../generated/ownergraph/decision/v1beta1/decision_service_pb.ts";
import { GraphService } from "../generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import { credentials } from "./backend.ts";

const TIMEOUT_MS = 20_000;

const withCredentials: Interceptor = (next) => (request) => {
  for (const [name, value] of Object.entries(credentials())) request.header.set(name, value);
  return next(request);
};

const options = { baseUrl: "/", interceptors: [withCredentials] };
const endless = createGrpcWebTransport(options);
const bounded = createGrpcWebTransport({ ...options, defaultTimeoutMs: TIMEOUT_MS });
// A stream lasts half an hour; a call that takes longer than its timeout has failed.
const transport: Transport = { unary: bounded.unary.bind(bounded), stream: endless.stream.bind(endless) };

export const graph: Client<typeof GraphService> = createClient(GraphService, transport);
export const decisions: Client<typeof DecisionService> = createClient(DecisionService, transport);
export const admin: Client<typeof AdminService> = createClient(AdminService, transport);
